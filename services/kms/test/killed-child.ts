/** Withdraws a key, and stops before and after each step until it is continued. See killed.test.ts. */
import { writeSync } from 'node:fs';
import { path, startService } from './support.ts';

const [dir] = process.argv.slice(2) as [string];

await using kms = await startService({ dir, flags: ['--kms.delete_wait=1ms'] });
const name = (await kms.create('aes-256-gcm')).slice(0, -3);
for (let version = 1; version < 3; version++) await kms.post(`/keys/${path(name)}/rotate`, {});
const wrapped = await kms.post('/wrap', { kid: name, plaintext_key_b64: 'YWJj' });
const { kid, wrapped_b64 } = wrapped.json as { kid: string; wrapped_b64: string };

const stop = (): void => {
  writeSync(1, 'stop\n');
  process.kill(process.pid, 'SIGSTOP');
};
/** Stops at the beginning and the end of each call. */
function stepped<A extends unknown[], R>(call: (...args: A) => Promise<R>): (...args: A) => Promise<R> {
  return async (...args) => {
    stop();
    const answer = await call(...args);
    stop();
    return answer;
  };
}
const { registry, backend } = kms.kms.vault;
registry.change = stepped(registry.change.bind(registry));
backend.destroy = stepped(backend.destroy.bind(backend));

const acknowledged: string[] = [];
const say = (state: string): void => {
  acknowledged.push(state);
  // Synchronous: the process may stop next.
  writeSync(1, `${JSON.stringify({ kid, wrapped_b64, acknowledged })}\n`);
};
say('enabled');
for (const [verb, body, state] of [
  ['policy', { min_version: 3 }, 'raised'],
  ['disable', undefined, 'disabled'],
  ['enable', undefined, 'enabled again'],
  ['delete', { whole: true }, 'deleting'],
  ['delete', { whole: true }, 'deleted'],
] as const) {
  const reply = await kms.post(`/keys/${path(name)}/${verb}`, body);
  if (reply.status >= 300) throw new Error(reply.text);
  say(state);
  await new Promise((resolve) => void setTimeout(resolve, 10));
}
