"""The frozen target model and what is read of it."""
