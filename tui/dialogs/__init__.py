"""Windows: forms, confirmations, results, help, menus."""
