/**
 * What the threads of a PKCS #11 backend run: one session each, kept between calls.
 *
 * Bound: one token for a thread; calls come one at a time.
 */
import type { Alg } from '../algorithms.ts';
import { Token, type TokenConfig, type TokenFacts } from './token.ts';

let token: Token | undefined;

/** Every thread of a pool is given the same configuration with every call. */
const tokenOf = (config: TokenConfig): Token => (token ??= new Token(config));

export const facts = (config: TokenConfig): TokenFacts => tokenOf(config).facts();
export const ping = (config: TokenConfig): void => tokenOf(config).ping();
export const create = (config: TokenConfig, name: string, alg: Alg, label: string): void =>
  tokenOf(config).create(name, alg, label);
export const publicKey = (config: TokenConfig, name: string): Uint8Array => tokenOf(config).publicKey(name);
export const destroy = (config: TokenConfig, name: string): void => tokenOf(config).destroy(name);
export const sign = (config: TokenConfig, name: string, messages: readonly Uint8Array[]): Uint8Array[] =>
  tokenOf(config).sign(name, messages);
export const hmac = (config: TokenConfig, name: string, data: Uint8Array): Uint8Array =>
  tokenOf(config).hmac(name, data);
export const close = (config: TokenConfig): void => tokenOf(config).close();
