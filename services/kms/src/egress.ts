/**
 * The outbound connections of kms: the cloud endpoint and the witness.
 *
 * Contract: public addresses over HTTPS, and the networks in `egress.networks`. Certificates in `egress.ca_file` are trusted
 * in addition to the system's. Rejects with `validation` if that file cannot be used.
 */
import { readFile } from 'node:fs/promises';
import type { EgressInit } from '@ron/egress';
import { RonError } from '@ron/kernel';
import type { KmsConfig } from './config.ts';

export async function egressOf({ egress }: KmsConfig): Promise<Pick<EgressInit, 'networks' | 'ca'>> {
  const { networks, ca_file } = egress;
  if (ca_file === undefined) return { networks };
  const pem = await readFile(ca_file, 'utf8').catch((cause: unknown) => {
    throw new RonError('validation', `cannot read egress.ca_file ${ca_file}`, { cause });
  });
  return { networks, ca: { pem, mode: 'add' } };
}
