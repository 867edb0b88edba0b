(** Proofs of Statements/Sketches.v. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra ring.
From LAI.Statements Require Import Networks Laws Sketches.
From LAI Require Import Vectors Variance Orders.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Signs.
Variables (R : realFieldType) (d : nat) (P : law R [finType of {ffun 'I_d -> bool}]).
Hypothesis fair : forall s, prob P s = 1 / 2%:R ^+ d.

(* Turning the sign of i is a bijection that keeps the law. *)
Definition turn i (s : {ffun 'I_d -> bool}) : {ffun 'I_d -> bool} := [ffun k => s k (+) (k == i)].
Lemma turnK i : involutive (turn i).
Proof. by move=> s; apply/ffunP => k; rewrite !ffunE -addbA addbb addbF. Qed.
Lemma sign_turn i s k : sign R (turn i s) k = (if k == i then -1 else 1) * sign R s k.
Proof. by rewrite /sign ffunE; case: eqP; rewrite ?addbT ?addbF ?signrN ?mulN1r ?mul1r. Qed.
Lemma sign_sqr (s : {ffun 'I_d -> bool}) i : sign R s i * sign R s i = 1. Proof. by rewrite -expr2 sqrr_sign.
  Qed.

(* What changes its sign with that of i has mean 0. *)
Lemma mean_odd i X : (forall s, X (turn i s) = - X s) -> mean P X = 0.
Proof.
move=> odd; have flip : mean P X = - mean P X.
  rewrite {1}/mean (reindex_inj (inv_inj (turnK i))) -sumrN; apply: eq_bigr => s _.
  by rewrite !fair odd mulrN.
by apply/eqP; rewrite -[_ == _](mulrn_eq0 _ 2) mulr2n {2}flip subrr.
Qed.
Lemma mean_signs i k : mean P (fun s => sign R s i * sign R s k) = (i == k)%:R.
Proof.
have [<-|ne] := eqVneq i k.
  by rewrite (eq_mean _ (Y := fun=> 1)) ?mean_const // => s; rewrite sign_sqr.
by apply: (mean_odd (i := i)) => s; rewrite !sign_turn eqxx eq_sym (negPf ne) mulN1r mul1r mulNr.
Qed.
Lemma mean_signs4 i k a b : i != k -> a != b ->
  mean P (fun s => (sign R s i * sign R s k) * (sign R s a * sign R s b))
  = ((i == a) && (k == b))%:R + ((i == b) && (k == a))%:R.
Proof.
move=> ik ab; have [e|ia] := eqVneq i a.
  subst a; rewrite (eq_mean _ (Y := fun s => sign R s k * sign R s b)) => [|s].
    by rewrite mean_signs [k == i]eq_sym (negPf ik) andbF addr0.
  by rewrite mulrACA sign_sqr mul1r.
have [e|ka] := eqVneq k a.
  subst a; rewrite (eq_mean _ (Y := fun s => sign R s i * sign R s b)) => [|s].
    by rewrite mean_signs andbT add0r.
  by rewrite -mulrA [sign R s k * (_ * _)]mulrA sign_sqr mul1r.
rewrite /= andbF addr0; apply: (mean_odd (i := a)) => s.
by rewrite !sign_turn eqxx (negPf ia) (negPf ka) [b == a]eq_sym (negPf ab) !mul1r mulN1r mulNr mulrN.
Qed.

Variables (w n : nat) (group : 'I_d -> 'I_w) (g h : 'M[R]_(d, n)).
Local Notation M := (g *m h^T).
Definition same i k := (group i == group k)%:R * M i k.

Lemma sketchE s : dot (sketch group s g) (sketch group s h)
  = \sum_i \sum_k same i k * (sign R s i * sign R s k).
Proof.
rewrite /dot (eq_bigr (fun b => \sum_i \sum_k (group i == b)%:R * ((group k == b)%:R
    * (M i k * (sign R s i * sign R s k))))) => [|b _].
  rewrite exchange_big; apply: eq_bigr => i _; rewrite exchange_big; apply: eq_bigr => k _.
  rewrite (bigD1 (group i)) //= eqxx mul1r big1 ?addr0 => [|b /negPf nb]; last by rewrite eq_sym nb mul0r.
  by rewrite /same eq_sym mulrA.
rewrite (eq_bigr (fun a => \sum_i \sum_k (group i == b)%:R * ((group k == b)%:R
    * (g i a * h k a * (sign R s i * sign R s k))))) => [|a _].
  rewrite exchange_big; apply: eq_bigr => i _; rewrite exchange_big; apply: eq_bigr => k _.
  by rewrite -!mulr_sumr -mulr_suml mxE; congr (_ * (_ * (_ * _))); apply: eq_bigr => a _; rewrite mxE.
rewrite !mxE mulr_suml big_mkcond; apply: eq_bigr => i _.
case: eqP => _; last by rewrite big1 // => k _; rewrite mul0r.
rewrite mulr_sumr big_mkcond; apply: eq_bigr => k _.
by case: eqP => _; rewrite ?mul1r ?mul0r ?mulr0 // mulrACA mulrC.
Qed.

Lemma mean_sketch : mean P (fun s => dot (sketch group s g) (sketch group s h)) = dot g h.
Proof.
rewrite (eq_mean _ sketchE) mean_sum /dot; apply: eq_bigr => i _; rewrite mean_sum (bigD1 i) //=.
rewrite meanZ mean_signs /same !eqxx mul1r mulr1 big1 ?addr0 => [|k ne]; last first.
  by rewrite meanZ mean_signs [i == k]eq_sym (negPf ne) mulr0.
by rewrite mxE; apply: eq_bigr => a _; rewrite mxE.
Qed.

(* Away from the mean, only pairs of different outputs are left. *)
Lemma sketch_off s : dot (sketch group s g) (sketch group s h) - dot g h
  = \sum_(p : 'I_d * 'I_d | p.1 != p.2) same p.1 p.2 * (sign R s p.1 * sign R s p.2).
Proof.
rewrite sketchE pair_bigA (bigID (fun p => p.1 != p.2)) /= -addrA [X in _ + X](_ : _ = 0) ?addr0 //.
apply/eqP; rewrite subr_eq0; apply/eqP; rewrite /dot.
rewrite (reindex_onto (fun i => (i, i)) fst) => [|[a b] /=]; last by rewrite negbK => /eqP ->.
apply: eq_big => [i|i _]; first by rewrite /= !eqxx.
by rewrite sign_sqr mulr1 /same eqxx mul1r mxE; apply: eq_bigr => a _; rewrite mxE.
Qed.

Definition crossed := \sum_(p : 'I_d * 'I_d | p.1 != p.2)
  (group p.1 == group p.2)%:R * (M p.1 p.2 ^+ 2 + M p.1 p.2 * M p.2 p.1).

Lemma var_sketch : var P (fun s => dot (sketch group s g) (sketch group s h)) = crossed.
Proof.
rewrite /var /cov mean_sketch; pose D := [pred p : 'I_d * 'I_d | p.1 != p.2].
pose x (p : 'I_d * 'I_d) (s : {ffun 'I_d -> bool}) := sign R s p.1 * sign R s p.2 : R.
rewrite (eq_mean _ (Y := fun s => \sum_p \sum_t (D p && D t)%:R * (same p.1 p.2 * same t.1 t.2) *
  (x p s * x t s)));
  last first.
  move=> s; rewrite sketch_off mulr_suml big_mkcond; apply: eq_bigr => p _ /=.
  case: ifP => _ /=; last by rewrite big1 // => t _; rewrite !mul0r.
  rewrite mulr_sumr big_mkcond; apply: eq_bigr => t _; case: ifP => _ /=; last by rewrite !mul0r.
  by rewrite mul1r mulrACA.
rewrite mean_sum /crossed [RHS]big_mkcond; apply: eq_bigr => -[i k] _ /=; rewrite mean_sum.
case: ifP => ik; last by rewrite big1 // => t _; rewrite (eq_mean _ (Y := fun=> 0)) ?mean_const // => s;
  rewrite !mul0r.
have ki : (k, i) != (i, k) by apply/eqP => -[e _]; move: ik; rewrite e eqxx.
rewrite (bigD1 (i, k)) // (bigD1 (k, i)) //= big1 => [|[a b] /= /andP []].
  have ik' : k != i by rewrite eq_sym.
  rewrite !meanZ ik ik' /= !mean_signs4 // !eqxx (negPf ik) (negPf ik') /= /same [group k == _]eq_sym.
  by case: (group i == group k) => /=; ring.
rewrite !xpair_eqE => n1 n2; rewrite meanZ.
have [_|ab] := eqVneq a b; first by rewrite /= !mul0r.
rewrite mean_signs4 // [i == a]eq_sym [k == b]eq_sym (negPf n1) [i == b]eq_sym
  [k == a]eq_sym andbC (negPf n2).
by rewrite addr0 mulr0.
Qed.

Lemma crossedE : crossed = \sum_b \sum_(i | group i == b) \sum_(k | (group k == b) && (i != k))
  (M i k ^+ 2 + M i k * M k i).
Proof.
rewrite /crossed -(pair_big_dep xpredT (fun i k => i != k)
  (fun i k => (group i == group k)%:R * (M i k ^+ 2 + M i k * M k i))) /=.
rewrite (partition_big group xpredT) //; apply: eq_bigr => b _; apply: eq_big => // i /eqP <-.
rewrite [in RHS]big_mkcondl; apply: eq_bigr => k _; rewrite eq_sym.
by case: ifP; rewrite ?mul1r ?mul0r.
Qed.
End Signs.

Theorem sketch_unbiased : Statements.Sketches.sketch_unbiased.
Proof. by move=> R d w n P group g h fair; apply: mean_sketch. Qed.

Theorem sketch_variance : Statements.Sketches.sketch_variance.
Proof. by move=> R d w n P group g h fair M; rewrite (var_sketch fair) crossedE. Qed.

Lemma pred_natr (R : ringType) n : (0 < n)%N -> n%:R - 1 = n.-1%:R :> R.
Proof. by move=> n0; rewrite -{1}(prednK n0) -addn1 natrD addrK. Qed.

(* Pairs of different things. *)
Lemma off_diagonal (R : zmodType) d (F : 'I_d -> 'I_d -> R) :
  \sum_(p : 'I_d * 'I_d | p.1 != p.2) F p.1 p.2 = \sum_i \sum_k F i k - \sum_i F i i.
Proof.
rewrite -(pair_big_dep xpredT (fun i k => i != k) F) -sumrB /=; apply: eq_bigr => i _.
by rewrite [in RHS](bigD1 i) //= addrC addKr; apply: eq_bigl => k; rewrite eq_sym.
Qed.

(* Two different outputs have near places as often as any other two. *)
Section Places.
Variables (R : realFieldType) (d : nat) (near : 'I_d -> 'I_d -> bool).
Definition often i k : R := \sum_(pi : 'S_d) (near (pi i) (pi k))%:R.
Definition nears : R := \sum_i \sum_k (near i k)%:R - \sum_i (near i i)%:R.
Lemma often_moved (t : 'S_d) i k : often i k = often (t i) (t k).
Proof. by rewrite /often (reindex_inj (mulgI t)); apply: eq_bigr => pi _; rewrite !permM. Qed.
Lemma often_same i k i' k' : i != k -> i' != k' -> often i k = often i' k'.
Proof.
move=> ik ik'; rewrite (often_moved (tperm i i')) tpermL; set k1 := tperm i i' k.
have k1i : i' != k1 by rewrite /k1 -[X in X != _](tpermL i i') (inj_eq perm_inj).
by rewrite (often_moved (tperm k1 k')) tpermL tpermD // eq_sym.
Qed.
Lemma oftenE i k : i != k -> often i k * (d%:R * (d%:R - 1)) = d`!%:R * nears.
Proof.
move=> ik; have -> : d%:R * (d%:R - 1) = \sum_(p : 'I_d * 'I_d | p.1 != p.2) 1 :> R.
  rewrite (off_diagonal (fun _ _ => 1)) !sumr_const card_ord mulrBr mulr1 -natrM; congr (_ - _).
  by rewrite natrM mulr_natl.
rewrite mulr_sumr (eq_bigr (fun p => often p.1 p.2)) => [|p np]; last by rewrite mulr1; apply: often_same.
rewrite exchange_big -sum_orders; apply: eq_bigr => pi _ /=.
rewrite (off_diagonal (fun i k => (near (pi i) (pi k))%:R)) /nears [in RHS](reindex_inj (@perm_inj _ pi));
  congr (_ - _).
  by apply: eq_bigr => a _; rewrite [in RHS](reindex_inj (@perm_inj _ pi)).
by rewrite [in RHS](reindex_inj (@perm_inj _ pi)).
Qed.
End Places.

(* How many places share a run, with one place and in all. *)
Lemma with_last m d : (0 < m)%N -> (\sum_(0 <= a < d) (a %/ m == d %/ m) = d %% m)%N.
Proof.
move=> m0; rewrite (@big_cat_nat _ _ _ (d %/ m * m)) ?leq_trunc_div //= big_nat_cond big1 =>
  [|a /andP [/andP [_ h] _]].
  rewrite add0n big_nat_cond (eq_bigr (fun=> 1%N)) => [|a /andP [/andP [h1 h2] _]].
    by rewrite -big_nat_cond sum_nat_const_nat muln1 {1}(divn_eq d m) addKn.
  by apply/eqP; rewrite eqb1 eqn_leq leq_div2r ?(ltnW h2) //= leq_divRL.
by apply/eqP; rewrite eqb0 neq_ltn ltn_divLR // h.
Qed.
Lemma run_pairs m d : (0 < m)%N ->
  (\sum_(0 <= a < d) \sum_(0 <= b < d) (a %/ m == b %/ m) = d %/ m * (m * m) + (d %% m) * (d %% m))%N.
Proof.
move=> m0; elim: d => [|d IH]; first by rewrite big_geq // div0n mod0n.
have -> : (\sum_(0 <= a < d.+1) \sum_(0 <= b < d.+1) (a %/ m == b %/ m)
    = \sum_(0 <= a < d) \sum_(0 <= b < d) (a %/ m == b %/ m) + d %% m + (d %% m).+1)%N.
  rewrite big_nat_recr //= (eq_bigr (fun a => \sum_(0 <= b < d) (a %/ m == b %/ m) + (a %/ m == d %/ m))%N) =>
    [|a _].
    rewrite big_split /= with_last // big_nat_recr //= eqxx addn1; congr (_ + _.+1)%N.
    by rewrite -[RHS](with_last d m0); apply: eq_bigr => b _; rewrite eq_sym.
  by rewrite big_nat_recr.
have lt := ltn_pmod d m0; have e := divn_eq d m; rewrite IH.
set f := (d %/ m)%N in e *; set r := (d %% m)%N in lt e *; rewrite {}e -addnS divnMDl // modnMDl.
have sqr : (r.+1 * r.+1 = r * r + r + r.+1)%N by rewrite mulSn mulnS addnC [(r + _)%N]addnC.
move: lt; rewrite leq_eqVlt => /orP [/eqP rm|lt];
  last by rewrite divn_small // modn_small // addn0 sqr !addnA.
by rewrite rm divnn m0 modnn muln0 addn0 mulnDl mul1n -rm sqr !addnA.
Qed.

Section Runs.
Variables (R : realFieldType) (d w : nat).
Hypothesis d1 : (1 < d)%N.
Local Notation m := (run_size d w).
Local Notation f := (full d w).
Local Notation r := (left_over d w).
Lemma run_size_gt0 : (0 < m)%N.
Proof. by rewrite divn_gt0 // -[w.+1]add1n leq_add2r ltnW. Qed.
Lemma run_size_le : (m.-1 * w.+1 <= d.-1)%N.
Proof.
have := leq_trunc_div (d + w) w.+1;
  rewrite -/m -(prednK run_size_gt0) mulSn addSn -(prednK (ltnW d1)) addSn ltnS addnC.
by rewrite leq_add2r.
Qed.
Lemma runs_suffice : (d <= w.+1 * m)%N.
Proof. by have := ltn_ceil (d + w) (ltn0Sn w); rewrite -/m mulSn addSn ltnS addnC leq_add2l mulnC. Qed.
Lemma run_same (i k : 'I_d) : (run w i == run w k) = (i %/ m == k %/ m)%N.
Proof.
have lt (a : 'I_d) : (a %/ m < w.+1)%N by rewrite ltn_divLR ?run_size_gt0 // (leq_trans _ runs_suffice).
by rewrite /run -val_eqE /= !inordK.
Qed.
Lemma d_neq0 : d%:R != 0 :> R. Proof. by rewrite pnatr_eq0 -lt0n ltnW. Qed.
Lemma d1_neq0 : d%:R - 1 != 0 :> R. Proof. by rewrite subr_eq0 (eqr_nat _ d 1) gtn_eqF. Qed.
Lemma dE : d%:R = f%:R * m%:R + r%:R :> R. Proof. by rewrite -natrM -natrD -divn_eq. Qed.
Lemma runs_near : nears R (fun i k : 'I_d => run w i == run w k) = f%:R * m%:R * (m%:R - 1)
  + r%:R * (r%:R - 1).
Proof.
rewrite /nears [X in _ - X](eq_bigr (fun=> 1)) => [|i _]; last by rewrite eqxx.
rewrite sumr_const card_ord.
have -> : \sum_(i < d) \sum_(k < d) (run w i == run w k)%:R = f%:R * (m%:R * m%:R) + r%:R * r%:R :> R.
  rewrite -!natrM -natrD -run_pairs ?run_size_gt0 // big_mkord natr_sum; apply: eq_bigr => i _.
  by rewrite big_mkord natr_sum; apply: eq_bigr => k _; rewrite run_same.
by rewrite dE; ring.
Qed.
Lemma chance_gap : 1 / w.+1%:R - chance d w R
  = (r%:R * (m%:R - r%:R) * w.+1%:R + d%:R * (d%:R - 1 - (m%:R - 1) * w.+1%:R)) /
    (d%:R * (d%:R - 1) * w.+1%:R).
Proof.
rewrite /chance; have -> : f%:R * m%:R * (m%:R - 1) = (d%:R - r%:R) * (m%:R - 1) :> R by rewrite dE; ring.
have W0 : w.+1%:R != 0 :> R by rewrite pnatr_eq0.
move: d_neq0 d1_neq0 W0; move: (d%:R : R) (w.+1%:R : R) => D W D0 D1 W0.
by field; rewrite D0 D1 W0.
Qed.
Lemma slack_ge0 : 0 <= d%:R - 1 - (m%:R - 1) * w.+1%:R :> R.
Proof.
by rewrite !pred_natr ?run_size_gt0 ?(ltnW d1) // -natrM subr_ge0 ler_nat run_size_le.
Qed.
End Runs.

Theorem sketch_permutation : Statements.Sketches.sketch_permutation.
Proof.
move=> R d w n P Q J g h fair uniform joint d1 M q group variance.
pose off := \sum_(p : 'I_d * 'I_d | p.1 != p.2) (M p.1 p.2 ^+ 2 + M p.1 p.2 * M p.2 p.1).
have d0 := d_neq0 R d1; have d10 := d1_neq0 R d1.
have share i k : i != k -> mean Q (fun pi => (group pi i == group pi k)%:R) = q.
  move=> ik; have := oftenE R (fun i k => run w i == run w k) ik; rewrite runs_near // => e.
  have -> : mean Q (fun pi => (group pi i == group pi k)%:R)
    = often R (fun i k => run w i == run w k) i k / d`!%:R.
    by rewrite /mean /often mulr_suml; apply: eq_bigr => pi _; rewrite uniform mul1r mulrC.
  rewrite -[often _ _ _ _](mulfK (mulf_neq0 d0 d10)) e /q /chance.
  by field; rewrite d0 d10 pnatr_eq0 -lt0n fact_gt0.
have over X : mean J X = mean Q (fun pi => mean P (fun s => X (s, pi))).
  rewrite /mean (eq_bigr (fun x => prob P x.1 * prob Q x.2 * X (x.1, x.2))) => [|[s pi] _];
    last by rewrite joint.
  rewrite -(pair_bigA _ (fun s pi => prob P s * prob Q pi * X (s, pi))) exchange_big /=;
    apply: eq_bigr => pi _.
  by rewrite mulr_sumr; apply: eq_bigr => s _; rewrite mulrA [prob P s * _]mulrC.
have offE : off = dot M M + \tr (M *m M) - 2%:R * \sum_i M i i ^+ 2.
  rewrite /off (off_diagonal (fun i k => M i k ^+ 2 + M i k * M k i)); congr (_ - _).
    rewrite /dot /mxtrace -big_split; apply: eq_bigr => i _ /=; rewrite mxE -big_split.
    by apply: eq_bigr => k _; rewrite expr2.
  by rewrite mulr_sumr; apply: eq_bigr => i _; rewrite expr2; ring.
have varE : variance = q * off.
  rewrite /variance /var /cov;
    set c := mean J (fun x => dot (sketch (group x.2) x.1 g) (sketch (group x.2) x.1 h)).
  have cE : c = dot g h.
    rewrite /c over (eq_mean _ (Y := fun=> dot g h)) ?mean_const // => pi;
      exact: (mean_sketch fair (group pi) g h).
  rewrite over (eq_mean _ (Y := fun pi => crossed (group pi) g h)) => [|pi]; last first.
    by rewrite -(var_sketch fair) /var /cov mean_sketch // cE.
  rewrite /mean; under eq_bigr do rewrite /crossed mulr_sumr.
  rewrite exchange_big /off mulr_sumr; apply: eq_bigr => -[i k] /= ik.
  by rewrite -(share i k ik) /mean mulr_suml; apply: eq_bigr => pi _; rewrite mulrA.
have off0 : 0 <= off.
  have : 0 <= off + off.
    have swap : injective (fun p : 'I_d * 'I_d => (p.2, p.1)) by move=> [a b] [a' b'] [-> ->].
    rewrite {2}/off (reindex_inj swap) /= {1}/off (eq_bigl (fun p => p.2 != p.1)) => [|p];
      last by rewrite eq_sym.
    rewrite -big_split; apply: sumr_ge0 => p _ /=.
    move: (M p.1 p.2) (M p.2 p.1) => x y.
    by rewrite (_ : _ + _ = (x + y) ^+ 2) ?sqr_ge0 //; ring.
  by rewrite -mulr2n pmulrn_lge0.
have W0 : 0 < w.+1%:R :> R by rewrite ltr0n.
have dpos : 0 < d%:R * (d%:R - 1) * w.+1%:R :> R.
  by rewrite !mulr_gt0 // ?subr_gt0 ?(ltr_nat _ 1) // ltr0n ltnW.
have m0 := run_size_gt0 w d1; have slack := slack_ge0 R w d1.
have rm : (left_over d w < run_size d w)%N by rewrite ltn_mod.
have rest0 : 0 <= (left_over d w)%:R * ((run_size d w)%:R - (left_over d w)%:R) * w.+1%:R :> R.
  by rewrite !mulr_ge0 ?ler0n // subr_ge0 ler_nat ltnW.
have qle : q <= 1 / w.+1%:R.
  rewrite -subr_ge0 chance_gap // divr_ge0 ?(ltW dpos) // addr_ge0 // mulr_ge0 ?ler0n //.
split=> //; first by rewrite varE offE.
  split=> //; rewrite varE; apply: le_trans (ler_wpmul2r off0 qle) _.
  rewrite mul1r mulrC ler_wpmul2r ?invr_ge0 ?ler0n // offE ler_subl_addr ler_addl mulr_ge0 ?ler0n //.
  by apply: sumr_ge0 => i _; rewrite sqr_ge0.
rewrite eq_sym -subr_eq0 chance_gap // mulf_eq0 invr_eq0 (gt_eqF dpos) orbF.
rewrite paddr_eq0 //; last by rewrite mulr_ge0 ?ler0n.
rewrite !mulf_eq0 (negPf d0) (gt_eqF W0) orbF !pnatr_eq0 /=.
rewrite [_ - (left_over d w)%:R == 0]subr_eq0 eqr_nat (gtn_eqF rm) orbF; congr (_ && _).
by rewrite !pred_natr // ?(ltnW d1) // -natrM subr_eq0 eqr_nat eq_sym.
Qed.
