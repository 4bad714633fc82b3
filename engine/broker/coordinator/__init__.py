"""What a broker coordinates for clients: groups (``group``); transactions will be beside them."""
