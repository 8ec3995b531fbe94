/** Packs as text. */
import type { PackDto, PackListDto } from '@ron/proto';
import { humanSize, table } from '../format.ts';
import { oneLine } from '../printable.ts';

export function packSummary({ name, address, format, tile_type, tiles, zooms, size }: PackDto): string {
  const tilesText = `${format}, ${count(tiles)} of ${tile_type}, zoom ${zoomText(zooms)}, ${humanSize(size)}`;
  return oneLine(`${name}  ${address}  ${tilesText}`);
}

/** Files that cannot be mounted are listed below the packs. */
export function packTable({ packs, bad }: PackListDto): string {
  const head = ['pack', 'format', 'tiles', 'zoom', 'size', 'address', ''];
  const rows = packs.map((pack) => [
    pack.name,
    `${pack.format} ${pack.tile_type}`,
    String(pack.tiles),
    zoomText(pack.zooms),
    humanSize(pack.size),
    pack.address,
    pack.problem === undefined ? '' : `not served: ${pack.problem}`,
  ]);
  const refused = bad.map(({ file, reason, is_served }) => {
    const effect = is_served ? 'the earlier version is served' : 'not served';
    return oneLine(`${file}: ${reason} (${effect})`);
  });
  if (packs.length === 0) return ['no packs; add one with `ron pack add FILE`', ...refused].join('\n');
  return [table(head, rows), ...(refused.length === 0 ? [] : ['', ...refused])].join('\n');
}

const count = (tiles: number): string => (tiles === 1 ? '1 tile' : `${tiles} tiles`);

const zoomText = ([min, max]: PackDto['zooms']): string => (min === max ? String(min) : `${min}-${max}`);
