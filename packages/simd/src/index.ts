export * from './bao.ts';
export * from './blake3.ts';
export * from './blake3-hasher.ts';
export * from './reed-solomon.ts';
