"""What runs the paper's tables and the command line: training, search, tables, reports, LETOR files and the demo."""
