"""The recipe of the bundled pair: python -m assets.training.train_pair --help"""
