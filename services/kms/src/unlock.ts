/** Reads the configured key or passphrase for the sealed files of kms. */
import { openUnlock as open, type OpenUnlockInit, type Unlock } from '@ron/custody';
import type { KmsConfig } from './config.ts';

export interface UnlockInit extends Pick<OpenUnlockInit, 'dir' | 'env' | 'fs' | 'warn'> {
  readonly config: KmsConfig;
}

export function openUnlock({ config, ...rest }: UnlockInit): Promise<Unlock> {
  const { kek_file, passphrase_file } = config.kms;
  return open({ ...rest, kek_file, passphrase_file });
}
