"""What an operator does and looks at beside the workers: decisions and calls; the commands show them."""
