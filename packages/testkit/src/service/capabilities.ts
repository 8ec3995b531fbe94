/** Capabilities for requests of tests. */
import { FileKeySource, mint, type KeySource, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { NEVER } from '@ron/kernel';
import { scopesOf, type Service } from '@ron/proto';

/** A type, not an interface: it is assignable to a record of headers. */
export type Authorization = { readonly authorization: string };

/** An `Authorization` header for a service: all its scopes for an hour, unless `init` changes that. */
export async function authorizationFor(
  keys: KeySource,
  audience: Service,
  init: Partial<MintInit> = {},
): Promise<Authorization> {
  const all: MintInit = { audience, scopes: scopesOf(audience), ttl_ms: 3_600_000 };
  leaks.secret(`the key of ${audience} capabilities`, (await keys.current(audience, NEVER)).key);
  return { authorization: `Bearer ${(await mint(keys, { ...all, ...init }, NEVER)).token}` };
}

/** The same from a key file, which is created if it does not exist. */
export async function authorizationFrom(
  key_file: string,
  audience: Service,
  init: Partial<MintInit> = {},
): Promise<Authorization> {
  await using keys = await FileKeySource.open({ path: key_file }, NEVER);
  return await authorizationFor(keys, audience, init);
}
