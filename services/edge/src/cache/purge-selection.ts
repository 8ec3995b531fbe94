/** Which keys a purge removes. */
import type { AssetKey } from '../assets/asset-key.ts';
import type { PurgeSelection } from './asset-cache.ts';

export function matcherOf(selection: PurgeSelection): (key: AssetKey) => boolean {
  if ('key' in selection) return (key) => key === selection.key;
  const prefix = 'prefix' in selection ? selection.prefix : `live/${selection.host.toLowerCase()}/`;
  return (key) => key.startsWith(prefix);
}
