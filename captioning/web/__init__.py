"""The page that captions photos: what the server shows, and a folder that needs no server."""
