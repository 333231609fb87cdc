"""What a project declares: models, the admins that speak for them, actions, history."""
