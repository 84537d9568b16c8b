"""One self-contained web page: markup of numbers, pictures as data, nothing from a network."""
