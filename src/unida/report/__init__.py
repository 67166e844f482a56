"""`report.html`: a finished run as one page that loads nothing else.

`data` reads what a run folder holds, `sampling` selects the images shown, `layout` places them on
the map and `thumbnails` draws them. `content` turns this into sections of plain values, `sentences`
writes its prose, and `page` puts everything into page.html, page.css and page.*.js. A section is
added as a function in `content.SECTIONS`, an element of page.html and a function of the script.
"""
