/** A destructive command asks on a terminal and goes on only after `yes`. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { BIN, temporaryDir } from './support.ts';

const KID = 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';
const isMissing = spawnSync('script', ['--version']).error !== undefined;
const skip = isMissing ? 'the script command is not here: install util-linux' : false;

test('any answer but yes changes nothing', { skip }, async (t) => {
  const dir = await temporaryDir(t);
  const answered = async (answer: string): Promise<{ code: number; output: string }> => {
    const command = `${process.execPath} ${BIN} keys delete ${KID} --dir ${dir}`;
    const child = spawn('script', ['-qec', command, '/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'] });
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      const isAsked = output.includes('Type yes');
      output += text;
      if (!isAsked && output.includes('Type yes')) child.stdin.write(answer);
    });
    const [code] = (await once(child, 'close')) as [number];
    return { code, output };
  };
  for (const answer of ['\n', 'no\n', 'y\n', '\u0004']) {
    const { code, output } = await answered(answer);
    assert.equal(code, 1, output);
    assert.match(output, /destroyed now and cannot be restored\. Type yes to continue: /);
    assert.match(output, /cancelled: nothing was changed/);
  }
  const { code, output } = await answered('yes\n');
  assert.notEqual(code, 1, output);
  assert.doesNotMatch(output, /cancelled/);
});
