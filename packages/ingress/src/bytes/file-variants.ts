/** The variants of a static file: its own bytes, and br and gzip if they are small enough. */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { RamSource } from '../fast/fast-path.ts';
import type { FileCoding, StaticFile } from './static-files.ts';

const COMPRESSIBLE = /^(?:text\/|application\/(?:[a-z.-]+\+)?(?:json|javascript|xml|wasm)\b|image\/svg\+xml)/;
const IMMUTABLE = 'public, max-age=31536000, immutable';
const REVALIDATED = 'no-cache';
/** A variant must be smaller than this part of the file. */
const WORTH = 0.95;
const HASH_LENGTH = 22;

const brotli = promisify(brotliCompress);
const gzipped = promisify(gzip);

export function hashOf(body: Uint8Array): string {
  return createHash('sha256').update(body).digest('base64url').slice(0, HASH_LENGTH);
}

/** The smallest variant, with the others as its variants: it is preferred if a client accepts several. */
export async function variantsOf(body: Buffer, file: StaticFile, codings: readonly FileCoding[]): Promise<RamSource> {
  const sources = [sourceOf(body, file, undefined)];
  for (const coding of COMPRESSIBLE.test(file.media_type) ? codings : []) {
    const coded = sourceOf(await COMPRESS[coding](body), file, coding);
    if (coded.size < body.length * WORTH) sources.push(coded);
  }
  const [first, ...others] = sources.toSorted((a, b) => a.size - b.size);
  return others.length === 0 ? first! : { ...first!, variants: others };
}

const COMPRESS: Readonly<Record<FileCoding, (body: Buffer) => Promise<Buffer>>> = {
  br: (body) => brotli(body, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: body.length } }),
  gzip: (body) => gzipped(body, { level: constants.Z_BEST_COMPRESSION }),
};

function sourceOf(body: Buffer, file: StaticFile, encoding: string | undefined): RamSource {
  const headers = { 'Cache-Control': file.hashed === true ? IMMUTABLE : REVALIDATED, ...file.headers };
  return {
    size: body.length,
    media_type: file.media_type,
    etag: `"${hashOf(body)}"`,
    headers,
    ...(encoding !== undefined && { encoding }),
    ram: [body],
    async *read(start, end) {
      yield [body.subarray(start, end)];
    },
  };
}
