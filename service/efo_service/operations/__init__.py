"""What the operator's commands read and change: decisions and calls. The commands display the results."""
