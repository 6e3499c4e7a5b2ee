"""Other servers with the same models, beside which treadle is measured."""
