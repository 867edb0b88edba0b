(** Witnesses of Statements/Mixtures.v: linear losses, whose gradients do not depend on the point. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Mixtures.
From LAI Require Import Vectors Ghost Witness Witnesses.Instances.
From LAI Require Statements.Mixtures.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Linear.
Variables (R : realFieldType) (m n : nat) (G : 'M[R]_(m, n)).
Lemma linear_slope x : gradient (dot G) x G.
Proof.
by move=> e e0; exists 1 => // D _; rewrite dotDr addrAC addrK subrr normr0 mulr_ge0 ?size1_ge0 // ltW.
Qed.
(* The same, for a function that is equal to it. *)
Lemma linear_slope_of f x : f =1 dot G -> gradient f x G.
Proof. by move=> fE e /(linear_slope x) [t t0 h]; exists t => // D /h; rewrite !fE. Qed.
End Linear.

(* Two sources of two samples each, all with the validation loss's gradient, the first unit vector. *)
Lemma share_derivative : ltac:(witness Statements.Mixtures.share_derivative).
Proof.
move=> R; exists 2%N; split=> //; exists 2%N; split=> //; exists (fun=> 2%N); split=> //.
exists (fun _ _ => corner R 1 0); split=> [*|]; first exact: corner_neq0.
exists (dot (corner R 1 0)), (corner R 1 0); split; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0.
exists 1, 1%:M; split; first by rewrite -mxrank_eq0 mxrank1.
exists (corner R 1 0); split; first exact: corner_neq0.
exists (stepped (fun (_ : 'I_2) (_ : 'I_2) => corner R 1 0) (corner R 1 0) 1 1%:M).
by split=> //; split; [exact: trmx1|exact: linear_slope].
Qed.

(* The statement asks of the logarithm that it is positive, which the numbers themselves are. *)
Lemma hedge_step : ltac:(witness Statements.Mixtures.hedge_step).
Proof.
move=> R; exists (fun n => n%:R), 2%N; split=> //; exists 10%:R, 1.
by split=> [n n1|]; rewrite ?ltr0n ?ltr01 // ltnW.
Qed.

(* Two losses with one gradient, with the weights 1 and 2. *)
Lemma sample_ownership : ltac:(witness Statements.Mixtures.sample_ownership).
Proof.
move=> R; exists 2%N; split=> //; exists 2%N; split=> //; exists 2%N; split=> //.
pose C := corner R 1 1; have C0 := corner_neq0 R 1 1.
have scaled c : c != 0 -> c *: C != 0 by move=> c0; rewrite scaler_eq0 negb_or c0.
exists (fun=> dot C), C; split=> //; exists (fun=> C); split=> //.
exists (fun k => k.+1%:R), (2%:R *: C); split; first by rewrite scaled // pnatr_eq0.
exists (3%:R *: C); split; first by rewrite scaled // pnatr_eq0.
split=> [k|]; first exact: linear_slope.
split; apply: linear_slope_of => y; rewrite dotZl big_ord_recl big_ord1 /=.
  by rewrite mulr_natl mulr2n.
by rewrite -mulrDl -natrD.
Qed.

(* All similarities are 1, and so is the weight that fits them; 0 fits them worse. *)
Lemma decoupled : ltac:(witness Statements.Mixtures.decoupled).
Proof.
move=> R; exists [finType of bool]; split; first by rewrite card_bool.
have sum2 : \sum_(z : bool) (1 ^+ 2 * 1 ^+ 2) = 2%:R :> R by rewrite big_bool /= !expr1n mulr1 -(natrD _ 1 1).
exists (fun=> 1), (fun=> 1), (fun=> 1); rewrite sum2 pnatr_eq0; split=> //.
exists 0; rewrite /slope sum2 big_bool /= expr1n !mulr1 -(natrD _ 1 1) divff ?pnatr_eq0 //.
by rewrite eq_sym oner_eq0.
Qed.

(* Two sources, equal shares at the start, the second with twice the factor; half of the prior is mixed in. *)
Section Doubling.
Variable R : realFieldType.
Local Notation half := (2%:R^-1 : R).
Definition doubled (k : 'I_2) : R := k.+1%:R.
Fixpoint doubling t : 'I_2 -> R :=
  if t is t'.+1 then moved half (fun=> half) (doubling t') doubled else fun=> half.
End Doubling.

Lemma mixture_regret : ltac:(witness Statements.Mixtures.mixture_regret).
Proof.
move=> R; exists 2%N; split=> //; exists 2%:R^-1, (fun=> 2%:R^-1), (@doubling R), (fun=> @doubled R).
split; first by split=> [k|]; [rewrite invr_gt0 ltr0n|rewrite big_ord_recl big_ord1; field].
split; first by rewrite invr_ge0 ler0n invf_le1 ?ltr0n // ler1n.
by split=> [t k|]; [rewrite ltr0n|split=> // t; left].
Qed.
