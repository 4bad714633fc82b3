"""Windows that ask or tell: forms, confirmations, results, help, menus."""
