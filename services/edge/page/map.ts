/**
 * The map page: draws a pack with MapLibre.
 *
 * Every byte of a PMTiles pack is verified in this page against the address of the pack, before MapLibre sees it. The
 * address is that of the fragment (`#b3:...`, from a source that the reader trusts), or else the one that the server states.
 * Tiles of other packs come from the server as they are, and the page says so.
 */
import { packSource } from '@ron/client/pack-source';
import { isAddress, type Address } from '@ron/proto';
import { addProtocol, AttributionControl, MapLibreMap, NavigationControl, setWorkerUrl } from 'maplibre-gl';
import { Compression, PMTiles, Protocol } from 'pmtiles';
import { byServer, byProtocol, type DrawnPack } from './drawn-pack.ts';
import { Status } from './status.ts';

/** The server states these facts in attributes of the map's element. */
interface PackElement {
  readonly name: string;
  readonly address: string;
  readonly format: string;
  readonly worker: string;
}

const element = document.querySelector<HTMLElement>('#map')!;
const pack = element.dataset as unknown as PackElement;
const status = new Status(document.querySelector<HTMLElement>('#status')!);

try {
  const expected = addressOf(location.hash.slice(1) || pack.address);
  draw(await drawnPack(expected));
} catch (error) {
  status.fail(error);
}

function addressOf(text: string): Address {
  if (isAddress(text)) return text;
  throw new Error(`${text} is not a valid address: a fragment has the form #b3:...`);
}

async function drawnPack(address: Address): Promise<DrawnPack> {
  const url = new URL(`../assets/pack/${pack.name}.pmtiles`, location.href);
  if (pack.format !== 'pmtiles') {
    status.unverified('MBTiles packs have no proofs: the server checks their files, this page cannot.');
    return await byServer(pack.name);
  }
  status.verified(0, address);
  const source = packSource(url, address, {
    onVerified: (verified_bytes) => status.verified(verified_bytes, address),
    onMismatch: (error) => status.mismatch(address, error),
  });
  const archive = new PMTiles(source);
  const { tileCompression } = await archive.getHeader();
  if (tileCompression === Compression.Brotli || tileCompression === Compression.Zstd) {
    status.unverified(
      'The tiles are compressed with br or zstd, which this page cannot decode: the server decodes them.',
    );
    return await byServer(pack.name);
  }
  const protocol = new Protocol();
  protocol.add(archive);
  addProtocol('pmtiles', protocol.tile);
  return await byProtocol(archive);
}

function draw({ style, bounds, zoom_max }: DrawnPack): void {
  setWorkerUrl(new URL(pack.worker, document.baseURI).href);
  const map = new MapLibreMap({
    container: element,
    style,
    bounds,
    fitBoundsOptions: { maxZoom: zoom_max },
    attributionControl: false,
  });
  map.addControl(new AttributionControl({ compact: false }));
  map.addControl(new NavigationControl({ showCompass: false }));
  map.on('error', ({ error }) => status.fail(error));
  map.on('idle', () => (element.dataset['state'] = 'idle'));
}
