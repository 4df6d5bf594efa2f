"""Records of papers: what each optimises, when its number holds, and what to doubt."""
