"""The report's playground on a page of its own.

The report inserts its three files, the script after the fragment. The style brings defaults for the custom properties
it uses (--font, --mono, --background, --surface, --border, --text, --muted, --accent, --negative, --positive), light
and dark by the system's theme or by ``data-theme`` on <html>; what the page defines on :root takes precedence.
"""

from importlib.resources import files

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>directloss playground</title>
<style>
body {{ max-width: 1120px; margin: 0 auto; padding: 16px; background: var(--background); }}
{css}</style>
</head>
<body>
{html}<script>
{js}</script>
</body>
</html>
"""


def page() -> str:
    """A page with nothing else in it."""
    folder = files("directloss.lab.report")
    return _PAGE.format(**{kind: (folder / f"playground.{kind}").read_text("utf-8") for kind in ("css", "html", "js")})
