"""The configurations that come with the package, one file per experiment."""
