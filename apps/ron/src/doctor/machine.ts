/** Checks Node and the directory of a node. */
import { access, constants, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { humanSize } from '../format.ts';
import type { Home } from '../home.ts';
import type { Finding } from './finding.ts';

const NODE_MAJOR_MIN = 26;
const FREE_BYTES_MIN = 1024 ** 3;

export function checkNode(): Finding {
  const { node } = process.versions;
  if (Number.parseInt(node, 10) >= NODE_MAJOR_MIN) return { level: 'ok', what: `Node ${node}` };
  return {
    level: 'fail',
    what: `Node ${node}`,
    fix: `version ${NODE_MAJOR_MIN} is required; \`npm install\` installs it`,
  };
}

export async function checkDirectory(home: Home): Promise<Finding[]> {
  const found = await stat(home.dir).catch(() => undefined);
  const place = found === undefined ? await existingAbove(home.dir) : home.dir;
  const findings: Finding[] = [];
  if (found === undefined)
    findings.push({ level: 'ok', what: `${home.dir} does not exist yet: \`ron up\` creates it` });
  else if (!found.isDirectory())
    return [{ level: 'fail', what: `${home.dir} is not a directory`, fix: 'choose another with --dir' }];
  else if ((found.mode & 0o077) !== 0)
    findings.push({ level: 'warn', what: `${home.dir} is open to other users`, fix: `chmod 700 ${home.dir}` });
  else findings.push({ level: 'ok', what: home.dir });
  const writable = await access(place, constants.W_OK).then(
    () => true,
    () => false,
  );
  const isDirectory = (await stat(place)).isDirectory();
  if (!isDirectory) return [{ level: 'fail', what: `${place} is not a directory`, fix: 'choose another with --dir' }];
  if (!writable) findings.push({ level: 'fail', what: `${place} is not writable`, fix: 'choose another with --dir' });
  const { bavail, bsize } = await statfs(place);
  const free = bavail * bsize;
  const what = `${humanSize(free)} free`;
  findings.push(
    free >= FREE_BYTES_MIN
      ? { level: 'ok', what }
      : { level: 'warn', what, fix: 'storage refuses writes on a full disk' },
  );
  return findings;
}

/** The nearest existing ancestor, in which the directory would be created. */
async function existingAbove(dir: string): Promise<string> {
  const above = dirname(dir);
  if (above === dir) return dir;
  const found = await stat(above).catch(() => undefined);
  return found === undefined ? await existingAbove(above) : above;
}
