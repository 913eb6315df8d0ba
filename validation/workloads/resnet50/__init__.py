"""ResNet-50 as the paper trains it. Only `pipeline` and `training` need TensorFlow."""
