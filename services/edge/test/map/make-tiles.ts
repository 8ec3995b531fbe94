/** Tiles that are easy to recognize in a picture. */
import { crc32, deflateSync } from 'node:zlib';
import { varint, type TestTile } from '../packs/make-pmtiles.ts';

export type Colour = readonly [red: number, green: number, blue: number];

/** One for each quarter of the world, from the north-west, row by row. */
export const QUARTERS: readonly Colour[] = [
  [200, 30, 30],
  [30, 160, 30],
  [30, 30, 200],
  [220, 180, 20],
];

/** All tiles of the zoom levels 1 to `zoom`, in the colour of their quarter, each with `padding` unused bytes. */
export function quarterTiles(zoom: number, padding: number): TestTile[] {
  const tiles: TestTile[] = [];
  for (let z = 1; z <= zoom; z++) {
    for (let x = 0; x < 2 ** z; x++) {
      for (let y = 0; y < 2 ** z; y++) {
        const quarter = (x >> (z - 1)) + 2 * (y >> (z - 1));
        tiles.push({ z, x, y, bytes: png(QUARTERS[quarter]!, Buffer.alloc(padding, `${z}/${x}/${y} `)) });
      }
    }
  }
  return tiles;
}

/** 256 x 256 pixels of one colour. */
export function png(colour: Colour, padding: Buffer): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(256, 0);
  header.writeUInt32BE(256, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.from([0, ...Array.from({ length: 256 }, () => colour).flat()]);
  const pixels = deflateSync(Buffer.concat(Array.from({ length: 256 }, () => row)));
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const parts = [chunk('IHDR', header), chunk('puDD', padding), chunk('IDAT', pixels), chunk('IEND', Buffer.alloc(0))];
  return Buffer.concat([signature, ...parts]);
}

function chunk(type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, sum]);
}

/** A vector tile whose layer covers the western half. */
export function westernHalf(layer: string): Buffer {
  const move = (x: number, y: number): number[] => [zigzag(x), zigzag(y)];
  const geometry = [9, ...move(0, 0), 26, ...move(2048, 0), ...move(0, 4096), ...move(-2048, 0), 15];
  const feature = Buffer.concat([field(3, 3), bytes(4, Buffer.from(geometry.flatMap(varint)))]);
  return bytes(3, Buffer.concat([field(15, 2), bytes(1, Buffer.from(layer)), bytes(2, feature), field(5, 4096)]));
}

const zigzag = (value: number): number => (value < 0 ? -2 * value - 1 : 2 * value);
const field = (number: number, value: number): Buffer => Buffer.from([...varint(number * 8), ...varint(value)]);
const bytes = (number: number, value: Buffer): Buffer =>
  Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(value.length)]), value]);
