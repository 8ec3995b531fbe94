/**
 * A capability file: JSON with one token for each service, or one bare token.
 *
 *     {"storage":"AgE..."}
 */
import type { Service } from '@ron/proto';
import { CliError } from './exits.ts';
import { readSecret, writeSecret } from '@ron/log/secret-file';

const FILE_BYTES_MAX = 65_536;

export type Capabilities = Readonly<Partial<Record<Service, string>>>;

/** The token for a service; undefined if the file or its entry for this service is missing. */
export async function readCapabilityFile(path: string, service: Service): Promise<string | undefined> {
  const found = await readCapabilities(path);
  return typeof found === 'string' ? found : found?.[service];
}

/** All tokens of a file, or its bare token. */
export async function readCapabilities(path: string): Promise<Capabilities | string | undefined> {
  const text = (await readSecret(path, FILE_BYTES_MAX))?.trim();
  if (text === undefined) return undefined;
  if (/^[A-Za-z0-9_-]+$/.test(text)) return text;
  try {
    const value = JSON.parse(text) as Record<string, unknown>;
    if (Object.values(value).every((token) => typeof token === 'string')) return value;
  } catch {
    // The parser's message would quote the secret.
  }
  throw new CliError(
    'permission',
    `${path} is not a capability file: move it away and run \`ron up\`, which creates a new one`,
  );
}

export async function writeCapabilities(path: string, capabilities: Capabilities): Promise<void> {
  await writeSecret(path, `${JSON.stringify(capabilities, undefined, 2)}\n`);
}
