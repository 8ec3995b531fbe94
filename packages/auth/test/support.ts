/** Shared by the tests of this package: a clock that they can set, and requests that are allowed unless changed. */
import assert from 'node:assert/strict';
import { installSched, realSched } from '@ron/kernel';
import { Checker, MemoryKeySource, mint } from '../src/index.ts';
import type { AccessGrant, AccessRefusal, AccessRequest, AccessVerdict } from '@ron/proto';
import type { CheckerInit, MintInit } from '../src/index.ts';

export const signal = new AbortController().signal;

/** Both clocks stand still until they are set. Disposing it restores the real ones. */
export class TestClock implements Disposable {
  wall_ms = 1_700_000_000_000;
  now_ms = 5000;
  readonly #previous = installSched({ ...realSched, wall_ms: () => this.wall_ms, now_ms: () => this.now_ms });

  [Symbol.dispose](): void {
    installSched(this.#previous);
  }
}

export class Bench {
  readonly keys = new MemoryKeySource();
  readonly checker: Checker;

  constructor(init: Partial<CheckerInit> = {}) {
    this.checker = new Checker({ audience: 'storage', keys: this.keys, ...init });
  }

  async token(init: Partial<MintInit> = {}): Promise<string> {
    const minted = await mint(
      this.keys,
      { audience: 'storage', scopes: ['storage:get', 'storage:put'], ttl_ms: 60_000, ...init },
      signal,
    );
    return minted.token;
  }

  async check(token: string, request: Partial<AccessRequest> = {}): Promise<AccessVerdict> {
    return this.checker.checkHeaders(
      { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '127.0.0.1', ...request },
      signal,
    );
  }

  async allowed(token: string, request: Partial<AccessRequest> = {}): Promise<AccessGrant> {
    const verdict = await this.check(token, request);
    assert.ok(verdict.ok, verdict.ok ? '' : verdict.reason);
    return verdict;
  }

  async refused(token: string, request: Partial<AccessRequest> = {}): Promise<AccessRefusal> {
    const verdict = await this.check(token, request);
    assert.ok(!verdict.ok, 'it was allowed');
    return verdict;
  }
}
