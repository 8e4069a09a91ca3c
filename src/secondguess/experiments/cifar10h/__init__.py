"""CIFAR-10H: which images are ambiguous, and which has the network not learned (section 5.1)?"""
