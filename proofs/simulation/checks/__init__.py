"""What must hold in a world, checked line by line while its story grows."""
