/** The entry point of a PKCS #11 thread: one token and one session, kept between calls, which arrive one at a time. */
import type { Alg } from '../algorithms/algorithms.ts';
import { Token, type TokenCall, type TokenFacts } from './token.ts';

let token: Token | undefined;

/** Every call of a pool carries the same configuration. */
function tokenOf(call: TokenCall): Token {
  token ??= new Token(call.config);
  token.useGeneration(call.generation);
  return token;
}

export const facts = (call: TokenCall): TokenFacts => tokenOf(call).facts();
export const ping = (call: TokenCall): void => tokenOf(call).ping();
export const create = (call: TokenCall, name: string, alg: Alg, label: string): void =>
  tokenOf(call).create(name, alg, label);
export const publicKey = (call: TokenCall, name: string): Uint8Array => tokenOf(call).publicKey(name);
export const destroy = (call: TokenCall, name: string): void => tokenOf(call).destroy(name);
export const sign = (call: TokenCall, name: string, messages: readonly Uint8Array[]): Uint8Array[] =>
  tokenOf(call).sign(name, messages);
export const hmac = (call: TokenCall, name: string, data: Uint8Array): Uint8Array => tokenOf(call).hmac(name, data);
export const close = (call: TokenCall): void => tokenOf(call).close();
