"""What `make demo` shows: digits, learnt by uneven workers under plain BSP and under other models."""
