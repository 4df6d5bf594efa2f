"""What is asked of a server: requests, prompts and arrivals. A tokenizer is passed in."""
