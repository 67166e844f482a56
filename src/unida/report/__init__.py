"""`report.html`: a run as one page that needs nothing else.

`reading` finds what a run folder holds, `choosing` which images are shown, `plane` where they lie
on the map, `thumbnails` what they look like; `words` says it in sentences, `content` puts it
together as plain values, and `page` writes these into the page. What the page does with them is
in `page.js`.
"""
