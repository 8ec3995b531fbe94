export * from './best-round.ts';
export * from './bytes.ts';
export * from './eventually.ts';
export * from './fuzz-runs.ts';
export * from './ports.ts';
export * from './proc.ts';
export * from './temp-dir.ts';
export * from './tmpfs.ts';
