"""How sure a prediction is: covariances, conformal sets, unusual images."""
