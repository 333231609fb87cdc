"""What a language model gets done through the endpoint of the example shop, measured without one or with one."""
