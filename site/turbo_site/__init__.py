"""The course as a site: pages made from the repository's own files, built by Sphinx."""
