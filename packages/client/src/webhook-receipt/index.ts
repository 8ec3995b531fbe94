export * from './check-receipt.ts';
export * from './receipt-tree.ts';
