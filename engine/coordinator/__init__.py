"""What a broker coordinates for clients: groups (``group``); transactions have their place beside them."""
