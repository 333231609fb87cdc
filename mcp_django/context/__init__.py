"""The context of a call: its request, questions and answers, confirmation and result."""
