// Writes a small PMTiles pack for a try: a raster map of the graticule, zoom 0 to 3, 85 tiles.
//
//     node docs/make-pack.js demo.pmtiles
//
// The same bytes on every machine: nothing depends on a library or on the time.
import { writeFile } from 'node:fs/promises';

const ZOOM_MAX = 3;
const TILE_PIXELS = 256;
/** Degrees between two lines. */
const STEP = 15;
const COLOURS = [
  [226, 238, 245], // background
  [150, 180, 200], // lines
  [60, 110, 150], // equator and prime meridian
  [242, 246, 238], // background of the tropics
];

/** Longitude and latitude of a pixel, Web Mercator. */
function degreesOf(z, x, y, column, row) {
  const pixels = TILE_PIXELS * 2 ** z;
  const lon = ((x * TILE_PIXELS + column) / pixels) * 360 - 180;
  const north = Math.PI * (1 - (2 * (y * TILE_PIXELS + row)) / pixels);
  return [lon, (Math.atan(Math.sinh(north)) * 180) / Math.PI];
}

/** Whether a line at a multiple of `step` lies between two neighbouring pixels. */
const crosses = (from, to, step) => Math.floor(from / step) !== Math.floor(to / step);

function colourAt(z, x, y, column, row) {
  const [lon, lat] = degreesOf(z, x, y, column, row);
  const [right, below] = degreesOf(z, x, y, column + 1, row + 1);
  if (crosses(lon, right, 180) || crosses(lat, below, 180)) return 2;
  if (crosses(lon, right, STEP) || crosses(lat, below, STEP)) return 1;
  return Math.abs(lat) < 23.4 ? 3 : 0;
}

/** Two bits for each pixel. */
function pixelsOf(z, x, y) {
  const row_bytes = 1 + TILE_PIXELS / 4;
  const pixels = Buffer.alloc(row_bytes * TILE_PIXELS);
  for (let row = 0; row < TILE_PIXELS; row++) {
    for (let column = 0; column < TILE_PIXELS; column++) {
      pixels[row * row_bytes + 1 + (column >> 2)] |= colourAt(z, x, y, column, row) << (6 - 2 * (column & 3));
    }
  }
  return pixels;
}

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

const uint32 = (value) => Buffer.from([value >>> 24, value >>> 16, value >>> 8, value]);

/** A zlib stream without compression: one stored block. */
function stored(bytes) {
  let [a, b] = [1, 0];
  for (const byte of bytes) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  const length = Buffer.alloc(4);
  length.writeUInt16LE(bytes.length, 0);
  length.writeUInt16LE(~bytes.length & 0xffff, 2);
  return Buffer.concat([Buffer.from([0x78, 0x01, 0x01]), length, bytes, uint32(((b << 16) | a) >>> 0)]);
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data]);
  return Buffer.concat([uint32(data.length), body, uint32(crc32(body))]);
}

function pngOf(z, x, y) {
  const header = Buffer.concat([uint32(TILE_PIXELS), uint32(TILE_PIXELS), Buffer.from([2, 3, 0, 0, 0])]);
  return Buffer.concat([
    Buffer.from('\u0089PNG\r\n\u001a\n', 'latin1'),
    chunk('IHDR', header),
    chunk('PLTE', Buffer.from(COLOURS.flat())),
    chunk('IDAT', stored(pixelsOf(z, x, y))),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** The place of a tile on the Hilbert curve, after all tiles of lower zooms. */
function tileId(z, x, y) {
  let id = (4 ** z - 1) / 3;
  for (let side = 2 ** (z - 1); side >= 1; side /= 2) {
    const [rx, ry] = [(x & side) > 0 ? 1 : 0, (y & side) > 0 ? 1 : 0];
    id += side * side * ((3 * rx) ^ ry);
    if (ry === 0) {
      if (rx === 1) [x, y] = [side - 1 - x, side - 1 - y];
      [x, y] = [y, x];
    }
  }
  return id;
}

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return [...bytes, value];
}

/** Entries without gaps between their tiles. */
function directoryOf(entries) {
  const ids = entries.flatMap(({ id }, at) => varint(at === 0 ? id : id - entries[at - 1].id));
  const runs = entries.map(() => 1);
  const lengths = entries.flatMap(({ tile }) => varint(tile.length));
  const offsets = entries.map((_, at) => (at === 0 ? 1 : 0));
  return Buffer.from([...varint(entries.length), ...ids, ...runs, ...lengths, ...offsets]);
}

const entries = [];
for (let z = 0; z <= ZOOM_MAX; z++) {
  for (let x = 0; x < 2 ** z; x++) for (let y = 0; y < 2 ** z; y++) entries.push({ id: tileId(z, x, y), tile: pngOf(z, x, y) });
}
entries.sort((left, right) => left.id - right.id);

const directory = directoryOf(entries);
const metadata = Buffer.from(JSON.stringify({ name: 'Graticule', description: `A line every ${STEP} degrees` }));
const tiles = Buffer.concat(entries.map(({ tile }) => tile));
const HEADER_BYTES = 127;
const header = Buffer.alloc(HEADER_BYTES);
header.write('PMTiles\u0003', 'latin1');
const tiles_start = HEADER_BYTES + directory.length + metadata.length;
const sections = [HEADER_BYTES, directory.length, HEADER_BYTES + directory.length, metadata.length, tiles_start, 0];
const counts = [entries.length, entries.length, entries.length];
[...sections, tiles_start, tiles.length, ...counts].forEach((value, at) => {
  header.writeBigUInt64LE(BigInt(value), 8 + 8 * at);
});
// Clustered; directories and tiles are not compressed; PNG; the zooms.
Buffer.from([1, 1, 1, 2, 0, ZOOM_MAX]).copy(header, 96);
[-180, -85.0511287, 180, 85.0511287].forEach((value, at) => header.writeInt32LE(Math.round(value * 1e7), 102 + 4 * at));
header.writeUInt8(1, 118);

const path = process.argv[2] ?? 'demo.pmtiles';
await writeFile(path, Buffer.concat([header, directory, metadata, tiles]));
console.log(`${path}: ${entries.length} tiles`);
