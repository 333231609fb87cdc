"""What travels with a call: its request, its questions and answers, its confirmation, its result."""
