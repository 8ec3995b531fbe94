export * from './disk-error.ts';
export * from './disk-gate.ts';
export * from './file-system.ts';
export * from './group-commit.ts';
export type { IteratedRecord } from './iterate.ts';
export * from './record.ts';
export * from './segment-log.ts';
export * from './whole-file.ts';
