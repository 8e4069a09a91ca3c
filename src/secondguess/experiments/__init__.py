"""The paper's experiments, one folder each: data with a known truth, run, figures and claims."""
