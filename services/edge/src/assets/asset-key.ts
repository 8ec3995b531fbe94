/**
 * The key of an asset: its canonical path below `/edge/assets/`.
 *
 *     live/tiles.example.org/a/b.png?size=2    an HTTPS origin: host, port unless 443, normalised path, sorted query
 *     o/b3:6fcb...                             an object of storage
 *     pack/planet/3/4/2.png                    a tile of a pack
 *
 * A key has one spelling. Requests with another spelling are answered by the route, never by the fast path. Users write the
 * same keys in `ron edge why` and `ron edge purge`.
 */
export type AssetKey = string;
