/** Prints the CPU time in ms of importing `node:http` alone, and with kernel and ingress, in a new process. */
const before = process.cpuUsage();
const spent_ms = (): number => {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
};
await import('node:http');
const http_ms = spent_ms();
await import('@ron/kernel');
await import('@ron/ingress');
process.stdout.write(`${http_ms} ${spent_ms()}`);
