/** Placeholder until the conversion exists. */
import type { Unlock } from '@ron/custody';
import type { FileSystem } from '@ron/log';

export interface UpgradeInit {
  readonly dir: string;
  readonly fs: FileSystem;
  readonly unlock: Unlock;
  readonly warn: (what: string) => void;
  readonly signal: AbortSignal;
}

export async function upgradeIfOld(_init: UpgradeInit): Promise<void> {}
