"""What the notebooks draw and ask; needs the extra [book] (matplotlib, ipywidgets, IPython)."""
